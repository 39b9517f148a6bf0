import{b as r}from"./chunk-2EC6SOCN.js";import{m18 as e}from"./core-A7BD57XO.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
